--! script rw_inspect
--! key 1 lock    hash
--! key 2 prefix  string
--! reply strings pttl, mode, then field and hold count in turn; nothing where the key is absent
--
-- Reads a read-write lock, without expired readers. The limit of 10000: see read_release; a reader beyond it counts
-- as live.
--! include read_write_mode
if not mode then
  return {}
end
local out = {string.format('%.0f', redis.call('pttl', KEYS[1])), mode}
local budget = 10000
local fields = redis.call('hgetall', KEYS[1])
for i = 1, #fields, 2 do
  local holds = tonumber(fields[i + 1]) or 0
  budget = budget - math.max(0, holds)
  local live = string.sub(fields[i], -6) == ':write' or budget < 0 and holds > 0
  for k = 1, live and 0 or holds do
    live = live or redis.call('exists', KEYS[2] .. ':' .. fields[i] .. ':rwlock_timeout:' .. k) == 1
  end
  if live then
    table.insert(out, fields[i])
    table.insert(out, fields[i + 1])
  end
end
return out
