--! fragment describe_count
--
-- Reads a count at KEYS[1], and the permits in use of a semaphore: see describe. Other data is the wrong kind: size is
-- the error of a read of a hash. If the user may not read the count, that is the error.
local count = redis.pcall('get', KEYS[1])
if type(count) == 'table' then
  return count
end
if type(count) ~= 'string' or #count > permits_longest or not string.find(count, '^%-?%d+$') then
  return size
end
kind, owners = 'count', {'', count}
local timeouts = prefix .. ':timeout'
local out = redis.pcall('zcard', timeouts)
if type(out) == 'number' and out > 0 then
  --! include server_time
  kind, owners = 'semaphore', {}
  out = redis.pcall('zcount', timeouts, '(' .. string.format('%.0f', now), '+inf')
  local last = redis.pcall('zrange', timeouts, -1, -1, 'withscores')
  if type(out) == 'number' and out > 0 and #last == 2 then
    owners = {last[1], string.format('%.0f', out)}
    left = tonumber(last[2]) < score_endless and tonumber(last[2]) - now or -1
  end
end
