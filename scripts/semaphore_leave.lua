--! script semaphore_leave
--! key 1 semaphore string NAME
--! arg 1 entry     string
--! reply int       1 the entry was in the queue; 0 it was not
--! bound 400 calls 10 MB
--
-- Takes an entry out of the queue of a semaphore of either kind: its client has no more waiters. Permits that were
-- kept for the entry go to the next clients.
--! include wake_queue name=KEYS[1] prefix='redisson_sc:'
local placed, was, kept, served, window = 0, nil, 0, false, 0
--! include leave_wake_queue entry=ARGV[1] placed=placed was=was
local free = tonumber(redis.pcall('get', KEYS[1])) or 0
if was and was < 0 and free > 0 then
  --! include kept_permits entry='' kept=kept window=window
  free = free - kept
  --! include tell_takers free=free asker='' served=served
end
return was and 1 or 0
