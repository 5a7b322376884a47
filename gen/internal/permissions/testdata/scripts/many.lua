--! script many
--! key * lock hash   NAME
--! key * time string {NAME}:time|other:{NAME}
--! reply ints for each: what there was
--
-- Which key an index is, is seen.
local out = {}
for i = 1, #KEYS, 2 do
  local lock = KEYS[i]
  out[(i + 1) / 2] = redis.call('del', 'a:' .. lock) + redis.call('get', 'b:' .. KEYS[i + 1])
end
for i = 1, #KEYS / 2 do
  out[i] = out[i] + redis.call('exists', 'c:' .. KEYS[2 * i - 1], 'd:' .. KEYS[2 * i])
end
return out
