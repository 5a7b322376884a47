--! script inspect
--! key 1 lock    hash NAME
--! reply strings pttl, then owner and hold count in turn; pttl is -2 where the key is absent
--! bound 12 calls 5 MB
--
-- Reads a lock. If the lock has several owners, those past their deadlines are left out: see delegate_enter.
local out = {string.format('%.0f', redis.call('pttl', KEYS[1]))}
local fields
local size = redis.call('hlen', KEYS[1])
--! include fields_of key=KEYS[1] size=size most=owners_read fields=fields
if not fields then -- damage: the lock is held, by unknown owners
  fields = {redis.call('hexists', KEYS[1], 'mode') == 1 and 'mode' or '', '0'}
end
if #fields > 2 and redis.call('hexists', KEYS[1], 'mode') == 1 then
  table.insert(out, 'mode') -- the wrong kind
  table.insert(out, '')
  return out
end
--! include live_owners fields=fields owners=out
return out
