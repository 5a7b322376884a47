--! script inspect
--! key 1 lock    hash
--! reply strings pttl, then owner and hold count in turn; pttl is -2 where the key is absent
local out = redis.call('hgetall', KEYS[1])
table.insert(out, 1, string.format('%.0f', redis.call('pttl', KEYS[1])))
return out
