--! script rw_leave
--! key 1 lock  hash NAME
--! arg 1 entry string
--! arg 2 owner string
--! reply int   1 the entry was in the queue; 0 it was not; 2 it was not, and the owner writes; 3 it was not, and the owner reads
--! bound 1500 calls 10 MB
--
-- Takes an entry out of the queue of a read-write lock: its client has no more waiters. If the client had been told
-- to ask, the next clients are told. owner, if not empty, is the owner in the entry: what it was granted is not
-- released.
--! include wake_queue name=KEYS[1] prefix='redisson_rwlock:'
local placed, was, served, all = 0, nil, false, nil
--! include entries_of letters='spn' entry=ARGV[1] all=all
for _, entry in ipairs(all) do
  if not was then
    --! include leave_wake_queue entry=entry placed=placed was=was
  end
end
local mode = redis.pcall('hget', KEYS[1], 'mode')
if was and was < 0 and (not mode or mode == 'read') then
  --! include tell_sides reading=mode served=served
end
if was or ARGV[2] == '' then
  return was and 1 or 0
end
if redis.pcall('hexists', KEYS[1], ARGV[2] .. ':write') == 1 then
  return leave_writing
end
return redis.pcall('hexists', KEYS[1], ARGV[2]) == 1 and leave_reading or 0
