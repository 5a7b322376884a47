--! script permits_release
--! key 1 permits  string  NAME
--! key 2 timeouts zset    {NAME}:timeout
--! key 3 channel  channel redisson_sc:{NAME}
--! arg 1 ids      string
--! arg 2 count    int
--! arg 3 publish  publish|spublish
--! reply int      1 released; 0 an id is not out, or its lease had ended
--! bound 1000 calls 10 MB
--
-- Releases the permits that are still in use, and tells the waiters. ids: as in permits_acquire.
--! include server_time
local size, out, live = #ARGV[1] / ARGV[2], {}, 0
for i = 1, tonumber(ARGV[2]) do
  local id = string.sub(ARGV[1], (i - 1) * size + 1, i * size)
  local score = redis.call('zscore', KEYS[2], id)
  if score then
    table.insert(out, id)
    live = tonumber(score) > now and live + 1 or live
  end
end
if #out == 0 then
  return 0
end
--! include permits_value
redis.call('zrem', KEYS[2], unpack(out))
local there = redis.call('incrby', KEYS[1], #out)
if there > 0 then
  --! include announce_permits publish=ARGV[3]
end
return live == tonumber(ARGV[2]) and 1 or 0
