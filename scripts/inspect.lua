--! script inspect
--! key 1 lock    hash
--! reply strings pttl, then owner and hold count in turn; pttl is -2 where the key is absent
--
-- Reads a lock. If the lock has several owners, those past their deadlines are left out: see delegate_enter.
local out = {string.format('%.0f', redis.call('pttl', KEYS[1]))}
local fields, over = redis.call('hgetall', KEYS[1]), {}
if #fields > 2 and redis.call('hexists', KEYS[1], 'mode') == 0 then
  --! include server_time
  --! include nest_of lock=KEYS[1]
  local entries = redis.call('hgetall', nest)
  for i = 1, #entries, 2 do
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
