--! script semaphore_take
--! key 1 semaphore string
--! key 2 once      string
--! arg 1 permits   int
--! arg 2 keep      ms
--! arg 3 again     bool
--! reply ints      1, n: taken, n are left; 0, n: refused, n are there
--
-- Takes permits, if there are as many. once remembers, for keep, that this request
-- was carried out (1) or cancelled (0). again: it was sent before, and may have been;
-- else a refusal need not look.
--! include count_value
local there = tonumber(value or '0')
if there >= tonumber(ARGV[1]) then
  if redis.call('set', KEYS[2], '1', 'px', ARGV[2], 'nx') then
    return {1, redis.call('decrby', KEYS[1], ARGV[1])}
  end
elseif ARGV[3] ~= '1' then
  return {0, there}
end
return {tonumber(redis.call('get', KEYS[2]) or '0'), there}
