--! script inspect
--! key 1 lock    hash NAME
--! reply strings pttl, then owner and hold count in turn; pttl is -2 where the key is absent
--! bound 12 calls 5 MB
--
-- Reads a lock. If the lock has several owners, those past their deadlines are left out: see delegate_enter.
local out = {string.format('%.0f', redis.call('pttl', KEYS[1]))}
local fields, over = {}, {}
local size = redis.call('hlen', KEYS[1])
--! include fields_of key=KEYS[1] size=size most=owners_read fields=fields
if not fields then -- damage: the lock is held, by unknown owners
  fields = {redis.call('hexists', KEYS[1], 'mode') == 1 and 'mode' or '', '0'}
end
if #fields > 2 and redis.call('hexists', KEYS[1], 'mode') == 0 then
  --! include server_time
  --! include nest_of lock=KEYS[1]
  local entries
  size = redis.call('hlen', nest)
  --! include fields_of key=nest size=size most=owners_read fields=entries
  for i = 1, entries and #entries or 0, 2 do
    local ends = tonumber(string.match(entries[i + 1], '^%d+:(%d+)$'))
    over[entries[i]] = ends and ends <= now
  end
end
for i = 1, #fields, 2 do
  if not over[fields[i]] then
    table.insert(out, fields[i])
    table.insert(out, fields[i + 1])
  end
end
return out
