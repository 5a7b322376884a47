--! fragment foreign_subscribers mark channel foreign
--
-- Counts the clients that subscribe to Redisson's channel and not to mortise's beside it: half-open connections of ours
-- do not count. Where the client of the entry mark is told by PUBLISH that does not count all subscribers, foreign
-- stays as it is.
if string.sub(mark, 1, 1) ~= 'n' then
  local count = redis.pcall('pubsub', string.sub(mark, 1, 1) == 's' and 'shardnumsub' or 'numsub', channel,
    channel .. ':mortise')
  foreign = count[4] and math.max(count[2] - count[4], 0) or foreign
end
