--! script joint
--! key * lock    hash    NAME
--! key * channel channel redisson_lock__channel:{NAME}
--! arg 1 publish publish|spublish
--! arg * owner   string
--! arg * lease   ms
--! reply ints    for each: as acquire, or where the lease is 0 as release with keep 0; -2 nothing was done, ask with acquire or release
--! bound 12 calls 1 KB
--
-- Acquires and releases several independent plain locks. A failure for one lock does not affect the others: its answer
-- is -2, and the caller sends acquire or release, which reports the error. -2 is also the answer to a release of a
-- lock with a queue, or with a subscriber on its channel, and to a request for a free lock with a queue or a window.
-- An error of the whole script means that nothing was done.
local answers, asked, named = {}, {}, {}
local free, n = true, 0
for i = 1, #KEYS, 2 do
  local lock = KEYS[i]
  --! include queue_of lock=lock
  n = n + 1
  asked[n] = queue
  if ARGV[i + 2] ~= '0' then -- a release without subscribers opens no window
    asked[n + 1], asked[n + 2] = lock, queue .. ':window'
    n = n + 2
    free = free and not named[lock]
    named[lock] = true
  end
end
free = redis.call('exists', unpack(asked)) == 0 and free -- one command: in most cases none of the keys exists
for i = 1, #KEYS, 2 do
  local lock, channel, owner, lease = KEYS[i], KEYS[i + 1], ARGV[i + 1], ARGV[i + 2]
  local answer, queued = -2, false
  local absent = free or lease ~= '0' and redis.call('exists', lock) == 0
  if not free and (absent or lease == '0') then
    --! include queue_of lock=lock
    queued = redis.call('exists', queue, queue .. ':window') > 0
  end
  if queued then
    answer = -2
  elseif lease == '0' then
    -- The message goes before the release: if the user may not publish, nothing is released. If a subscriber hears it,
    -- which may be a foreign client, nothing is released either: release serves waiters.
    local heard = redis.pcall(ARGV[1], channel, '+0')
    --! include reached publish=ARGV[1] to=channel heard=heard
    if heard == 0 then
      local held = redis.pcall('hdel', lock, owner)
      answer = (held == 0 or held == 1) and held or -2
    end
  elseif absent then
    if redis.pcall('hset', lock, owner, '1') == 1 then
      if redis.pcall('pexpire', lock, lease) == 1 then
        answer = 0
      else
        redis.pcall('hdel', lock, owner)
      end
    end
  else
    local held, left = redis.pcall('hexists', lock, owner), redis.pcall('pttl', lock)
    if held == 1 and type(left) == 'number' then -- the write of a repeated request: see acquire
      if redis.pcall('pexpire', lock, left > 0 and left or lease) == 1 then
        answer = 0
      end
    elseif held == 0 and type(left) == 'number' and redis.pcall('hexists', lock, 'mode') == 0 then
      answer = left < 0 and -1 or math.max(left, 1)
    end
  end
  answers[(i + 1) / 2] = answer
end
return answers
