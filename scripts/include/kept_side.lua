--! fragment kept_side entry side kept
--
-- kept is for how many ms a side of a read-write lock is kept for clients that were told to ask, except the client
-- of entry; unchanged if it is not. The read side is kept for a writer, the write side for any client.
--! include told_entries
for i = 1, #told do
  if told[i] == 'redisson' then
    kept = math.max(1, -at - (tonumber(redis.pcall('zscore', queue, told[i])) or 0))
  elseif told[i] ~= entry and (side == 'w' or redis.pcall('hget', asks, told[i]) == 'w') then
    kept = reservation
    break
  end
end
