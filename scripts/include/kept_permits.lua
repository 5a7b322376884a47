--! fragment kept_permits entry kept
--
-- How many permits are kept for clients that were told to ask, other than that of an entry.
--! include told_entries
for i = 1, #told do
  if told[i] ~= entry then
    local wants = tonumber(redis.pcall('hget', queue .. ':wants', told[i])) or 1
    kept = kept + math.max(1, math.min(wants, 2147483647)) -- in this order: 1 for what is not a number
  end
end
