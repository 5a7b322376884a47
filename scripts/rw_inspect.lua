--! script rw_inspect
--! key 1 lock    hash   NAME
--! key 2 prefix  string {NAME}
--! reply strings pttl, mode, then field and hold count in turn; nothing where the key is absent
--! bound 10500 calls 3 MB
--
-- Reads a read-write lock, without expired readers. The limit holds_read: see longest_reader; a reader beyond it
-- counts as live. Of more fields than that none is told.
--! include read_write_mode
if not mode then
  return {}
end
local out = {string.format('%.0f', redis.call('pttl', KEYS[1])), mode}
local budget = holds_read
local fields
local size = redis.call('hlen', KEYS[1])
--! include fields_of key=KEYS[1] size=size most=holds_read+1 fields=fields
for i = 1, fields and #fields or 0, 2 do
  local holds = tonumber(fields[i + 1]) or 0
  budget = budget - math.max(0, holds)
  local live = string.sub(fields[i], -#':write') == ':write' or budget < 0 and holds > 0
  if #fields[i] > owner_longest then -- damage: see longest_reader
    live, holds = false, 0
  end
  for k = 1, live and 0 or holds do
    live = live or redis.call('exists', KEYS[2] .. ':' .. fields[i] .. ':rwlock_timeout:' .. k) == 1
  end
  if live then
    table.insert(out, fields[i])
    table.insert(out, fields[i + 1])
  end
end
return out
