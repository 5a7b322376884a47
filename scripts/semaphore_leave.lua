--! script semaphore_leave
--! key 1 semaphore string NAME
--! arg 1 entry     string
--! arg 2 ids       string
--! arg 3 count     int
--! reply int       1 the entry was in the queue; 0 it was not; 4 it was not, and the owner in it has permits
--! bound 1000 calls 10 MB
--
-- Takes an entry out of the queue of a semaphore of either kind: its client has no more waiters. Permits that were
-- kept for the entry go to the next clients. What the owner in an entry was granted is not released: ids
-- are those of its permits, as in permits_acquire.
--! include wake_queue name=KEYS[1] prefix='redisson_sc:'
local placed, was, kept, served, window, granted, all = 0, nil, 0, false, 0, 0, nil
--! include entries_of letters='spn' entry=ARGV[1] all=all
for _, entry in ipairs(all) do
  if not was then
    --! include leave_wake_queue entry=entry placed=placed was=was
  end
end
local free = tonumber(redis.pcall('get', KEYS[1])) or 0
if was and was < 0 and free > 0 then
  --! include kept_permits entry='' kept=kept window=window
  free = free - kept
  --! include tell_takers free=free asker='' served=served granted=granted
end
local prefix
--! include prefix_of lock=KEYS[1]
local timeouts, size = prefix .. ':timeout', #ARGV[2] / math.max(ARGV[3], 1)
for i = 1, was and 0 or math.min(ARGV[3], permits_granted) do
  if type(redis.pcall('zscore', timeouts, string.sub(ARGV[2], (i - 1) * size + 1, i * size))) == 'string' then
    return leave_holding
  end
end
return was and 1 or 0
