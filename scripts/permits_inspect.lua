--! script permits_inspect
--! key 1 permits  string NAME
--! key 2 timeouts zset   {NAME}:timeout
--! arg 1 most     int
--! reply strings  how many are free, how many are out, then id and what is left of its lease in ms in turn
--! bound 12 calls 2 MB
--
-- Reads the count of a semaphore, the number of its permits in use, and as many of these permits as most says, the
-- earliest expiry first. Expired permits count as free, as many as return_ended returns at once.
--! include permits_value
--! include server_time
local free, out = tonumber(value or '0'), redis.call('zcard', KEYS[2])
local last = string.format('%.0f', now)
local ended = math.min(redis.call('zcount', KEYS[2], '-inf', last), ended_most)
local reply = {string.format('%.0f', free + ended), string.format('%.0f', out - ended)}
local permits = redis.call('zrangebyscore', KEYS[2], '(' .. last, '+inf', 'withscores', 'limit', 0, ARGV[1])
for i = 1, #permits, 2 do
  table.insert(reply, permits[i])
  table.insert(reply, string.format('%.0f', tonumber(permits[i + 1]) - now))
end
return reply
