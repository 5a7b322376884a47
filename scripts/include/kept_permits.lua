--! fragment kept_permits entry kept window
--
-- How many permits are kept for clients that were told to ask, other than that of an entry; window is for how many
-- ms one of them is Redisson's.
--! include told_entries
for i = 1, #told do
  if told[i] == 'redisson' then
    kept, window = kept + 1, math.max(1, -at - (tonumber(redis.pcall('zscore', queue, told[i])) or 0))
  elseif told[i] ~= entry then
    local wants = tonumber(redis.pcall('hget', queue .. ':wants', told[i])) or 1
    kept = kept + math.max(1, math.min(wants, 2147483647)) -- in this order: 1 for what is not a number
  end
end
