--! script rw_leave
--! key 1 lock  hash NAME
--! arg 1 entry string
--! reply int   1 the entry was in the queue; 0 it was not
--! bound 400 calls 10 MB
--
-- Takes an entry out of the queue of a read-write lock: its client has no more waiters. If the client had been told
-- to ask, the next clients are told.
--! include wake_queue name=KEYS[1] prefix='redisson_rwlock:'
local placed, was, served = 0, nil, false
--! include leave_wake_queue entry=ARGV[1] placed=placed was=was
local mode = redis.pcall('hget', KEYS[1], 'mode')
if was and was < 0 and (not mode or mode == 'read') then
  --! include tell_sides reading=mode served=served
end
return was and 1 or 0
