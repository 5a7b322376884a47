--! script serve
--! key 1 lock      hash
--! key 2 channel   channel
--! key 3 queue     zset
--! key 4 token     string
--! arg 1 owner     string
--! arg 2 successor string
--! arg 3 lease     ms
--! arg 4 fenced    bool
--! arg 5 track     bool
--! arg 6 yield     bool
--! arg 7 entry     string
--! arg 8 keep      ms
--! reply ints      0, 0: the owner does not hold the lock; 1, 0: released; 2, 0: released, and the client's entry is in the queue; 3, token (0 unless fenced): the successor holds it
--
-- Releases the lock and grants it to a successor of the same client in one step, without a message.
-- With yield only if no other client waits; otherwise it is released, as by release, and the
-- client, which has waiters of its own, gets a place at the end of the queue.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return {0, 0}
end
local told = string.sub(ARGV[7], 1, 1)
local counts, say = told ~= 'n', told == 's' and 'spublish' or 'publish'
local others = redis.call('hlen', KEYS[1]) > 1 -- a read lock that Redisson granted over this one
if ARGV[6] == '1' and not others then
  others = not counts or redis.call('exists', KEYS[3]) == 1
  if not others then
    local numsub = say == 'spublish' and 'shardnumsub' or 'numsub'
    local count = redis.pcall('pubsub', numsub, KEYS[2], KEYS[2] .. ':mortise')
    others = not count[4] or count[2] > count[4]
  end
end
if others then
  local out, served, left = 1, false, redis.call('time')
  redis.call('hdel', KEYS[1], ARGV[1])
  if type(redis.pcall('zadd', KEYS[3], left[1] * 1000000 + left[2], ARGV[7])) ~= 'table' then
    redis.call('pexpire', KEYS[3], ARGV[8])
    out = 2
  end
  if redis.call('exists', KEYS[1]) == 0 then
    --! include serve_queue lock=KEYS[1] queue=KEYS[3] channel=KEYS[2] asker='' heard=false freed=true served=served
  end
  if not served then
    redis.call(say, KEYS[2], '0')
  end
  return {out, 0}
end
-- The token first: where it cannot be drawn, nothing is handed over.
local token = 0
if ARGV[4] == '1' then
  --! include draw_token counter=KEYS[4] token=token
end
redis.call('hset', KEYS[1], ARGV[2], 1)
redis.call('hdel', KEYS[1], ARGV[1])
redis.call('pexpire', KEYS[1], ARGV[3])
--! include read_back track=ARGV[5] lock=KEYS[1]
return {3, token}
