--! fragment join_queue entry wish lease reserve placed
--
-- Puts the entry of a refused client into the queue. placed is 1 if the entry is in the queue, 2 if it is also the
-- first that waits, 0 on a server that refuses writes. An entry that was told to ask goes before the others. First
-- entries, 64 at most, that have waited for 100 ms are removed if their clients do not listen: they are dead.
-- reserve: the client asks again at once, for fewer permits, and these are kept for it. The queue is kept for ten
-- minutes: a client that waits for 10,000 names asks for each of them every few minutes. lease: see owner_entry.
clock()
local score, written = tonumber(redis.pcall('zscore', queue, entry)), 0
if not at then
  written = nil
elseif reserve then
  written = redis.pcall('zadd', queue, string.format('%.0f', -at - reservation), entry)
elseif not score then
  written = redis.pcall('zadd', queue, us, entry)
  local moved
  --! include to_end entry=entry score=moved
elseif score < 0 then
  written = redis.pcall('zadd', queue, 0, entry)
end
if wish ~= '1' then
  redis.pcall('hset', asks, entry, wish)
  redis.pcall('pexpire', asks, queue_kept)
elseif score then
  redis.pcall('hdel', asks, entry)
end
if string.find(entry, '^%l[^:]*:%w+%+:') then
  redis.pcall('hset', asks, 'lease:' .. entry, lease)
  redis.pcall('pexpire', asks, queue_kept)
end
if type(written) == 'number' then
  redis.pcall('pexpire', queue, queue_kept)
  local head, dropped = redis.pcall('zrangebyscore', queue, 0, '+inf', 'withscores', 'limit', 0, 1), false
  --! include tell_first first=head message=nil asker=entry nth=redis.pcall('zrangebyscore',queue,0,'+inf','withscores','limit',behind,1) dropped=dropped
  if dropped and head[1] and head[1] ~= entry then -- its client does not know that it is the first
    tell(head[1], 'n' .. reservation .. ':')
  end
  placed = head[1] == entry and 2 or 1
end
