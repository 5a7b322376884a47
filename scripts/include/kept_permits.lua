--! fragment kept_permits entry kept window
--
-- kept is how many permits are kept for clients that were told to ask, except the client of entry. window is for how
-- many ms one of them is kept for Redisson's clients.
--! include told_entries
for i = 1, #told do
  if told[i] == 'redisson' then
    kept, window = kept + 1, math.max(1, -at - (tonumber(redis.pcall('zscore', queue, told[i])) or 0))
  elseif told[i] ~= entry then
    local wants = tonumber(redis.pcall('hget', asks, told[i])) or 1
    kept = kept + math.max(1, math.min(wants, permits_most)) -- in this order: 1 for a NaN
  end
end
