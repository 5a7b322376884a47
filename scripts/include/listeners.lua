--! fragment listeners entry channel listeners
--
-- Counts the subscribers of the channel on which the client of an entry is told (see teller). listeners is nil if they
-- cannot be counted.
listeners = redis.pcall('pubsub', string.sub(entry, 1, 1) == 's' and 'shardnumsub' or 'numsub',
  channel .. ':to:' .. string.match(entry, '^.?([^:]*)'))[2]
