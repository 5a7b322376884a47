--! script hand_on
--! key * lock    hash
--! key * queue   list
--! arg * owner   string
--! reply ints    for each lock: 1 handed on; 0 nobody waits
local out = {}
for i = 1, #KEYS, 2 do
  local n = (i + 1) / 2
  out[n] = 0
  if redis.call('rpoplpush', KEYS[i + 1], KEYS[i] .. ':' .. ARGV[n]) then
    out[n] = 1
  end
end
return out
