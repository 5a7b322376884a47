--! fragment take_place entry instead
--
-- Gives the place of instead to entry: the client asks no more for the owner in instead. If instead is not in the
-- queue, nothing changes.
if instead ~= '' and redis.pcall('zscore', queue, entry) == false then
  local all
  --! include entries_of letters=string.sub(instead,1,1) entry=instead all=all
  for _, old in ipairs(all) do
    local score = redis.pcall('zscore', queue, old)
    if type(score) == 'string' and redis.pcall('zrem', queue, old) == 1 then
      local wants = redis.pcall('hget', asks, old)
      redis.pcall('zadd', queue, score, entry)
      redis.pcall('hdel', asks, old, 'lease:' .. old)
      if type(wants) == 'string' then
        redis.pcall('hset', asks, entry, wants)
      end
    end
  end
end
