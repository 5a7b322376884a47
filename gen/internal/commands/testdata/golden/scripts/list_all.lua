--! script list_all
--! key 1 lock hash
--! reply strings
return redis.call('hkeys', KEYS[1])
