--! fragment describe_queue queue most out waiting
--
-- Adds the number of entries in a queue to waiting, and the first of them with their scores to out. The turn of
-- Redisson's clients is no entry. A user that may not read the queue sees none.
local size = redis.pcall('zcard', queue)
if type(size) == 'number' and size > 0 then
  waiting = waiting + size
  if redis.pcall('zscore', queue, 'redisson') then
    waiting = waiting - 1
  end
  local first = most > 0 and redis.pcall('zrange', queue, 0, most - 1, 'withscores') or {}
  for _, text in ipairs(first) do
    out[#out + 1] = text
  end
end
