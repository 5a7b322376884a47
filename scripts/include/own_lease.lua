--! fragment own_lease owner left
--
-- Sets left to what is left of the lease of an owner of KEYS[1], in ms: -1 without an end, 0 if the lease is over. If
-- the lock has several owners, its time to live is the latest deadline, and each owner has its own: see delegate_enter.
left = redis.call('pttl', KEYS[1])
if redis.call('hlen', KEYS[1]) > 1 then
  --! include server_time
  --! include nest_of lock=KEYS[1]
  local entry = redis.call('hmget', nest, owner)[1] or ''
  local ends = tonumber(string.match(entry, '^%d+:(%d+)$'))
  if ends and ends < exact_most then
    left = math.max(ends - now, 0)
  end
end
