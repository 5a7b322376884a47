--! fragment foreign_subscribers mark channel foreign
--
-- Sets foreign to the number of subscribers of Redisson's channel, less those of mortise's channel beside it: clients
-- of mortise subscribe to both, and half-open connections cancel out, too. mark is an entry, or the first letter of
-- one (see teller). If subscribers cannot be counted (the letter n, or an error), foreign keeps its value.
if string.sub(mark, 1, 1) ~= 'n' then
  local count = redis.pcall('pubsub', string.sub(mark, 1, 1) == 's' and 'shardnumsub' or 'numsub', channel,
    channel .. ':mortise')
  foreign = count[4] and math.max(count[2] - count[4], 0) or foreign
end
