--! fragment foreign_clients mark channel foreign fair
--
-- Counts the clients that subscribe to Redisson's channel and not to mortise's beside it: half-open connections of ours
-- do not count. The waiters for a fair lock, the first of which is in fair then, count as one. Where the client of
-- the entry mark is told by PUBLISH that does not count all subscribers, foreign stays as it is.
if string.sub(mark, 1, 1) ~= 'n' then
  local count = redis.pcall('pubsub', string.sub(mark, 1, 1) == 's' and 'shardnumsub' or 'numsub', channel,
    channel .. ':mortise')
  foreign = count[4] and math.max(count[2] - count[4], 0) or foreign
end
fair = redis.pcall('lindex', 'redisson_lock_queue:' .. string.sub(channel, 24), 0)
fair = type(fair) == 'string' and fair
foreign = foreign + (fair and 1 or 0)
