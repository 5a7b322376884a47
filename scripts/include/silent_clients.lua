--! fragment silent_clients publish channel
--
-- Cuts the other places, without a subscriber, of the clients in silent: they may be dead, and would delay the queue
-- one after the other. A live waiter asks when it begins to listen, which raises its score.
local others, whole = {}, true
if next(silent) then
  --! include places_of most=places_read places=others whole=whole
end
for _, other in ipairs(others) do
  local score = silent[string.match(other, '^.*:') or ''] and tonumber(redis.call('zscore', KEYS[3], other) or limit)
  if score and score > limit then
    local count = redis.pcall('pubsub', publish == 'spublish' and 'shardnumsub' or 'numsub', channel .. ':' .. other)
    if count[2] == 0 then
      redis.call('zadd', KEYS[3], limit - (score % 1 >= mark_ours and mark_ours_cut or mark_cut), other)
    end
  end
end
