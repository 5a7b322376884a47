--! fragment drop_dead asker first dropped
--
-- In serve_queue: takes the entries out of the front of a queue whose clients do not listen, up to the asker's entry:
-- dead_most at most, of dead_bytes together. As many as dead_batch are counted by one command. Nothing is taken out that
-- polls, or that this user may not look for. Each client is told to ask: it may hear the message from a replica.
-- dropped becomes the number of entries, and first the first one that is left.
local letter, size = string.sub(first, 1, 1), 0
while first and dropped < dead_most and size < dead_bytes do
  local front, entries, to, polls = redis.pcall('zrange', queue, 0, dead_batch - 1), {}, {}, {}
  for i, entry in ipairs(front) do
    size = size + #entry
    if entry == asker or string.sub(entry, 1, 1) ~= letter or size >= dead_bytes then
      break
    end
    entries[i], polls[i] = entry, 'polls:' .. entry
    to[i] = channel .. ':to:' .. tag_of(entry)
  end
  local counts = to[1] and redis.pcall('pubsub', letter == 's' and 'shardnumsub' or 'numsub', unpack(to)) or {}
  polls = to[1] and redis.pcall('hmget', round, unpack(polls)) or {}
  local dead = {}
  for i, entry in ipairs(entries) do
    if counts[2 * i] ~= 0 or polls[i] ~= false then -- also after an error
      break
    end
    dead[i] = entry
  end
  if not dead[1] or type(redis.pcall('zrem', queue, unpack(dead))) == 'table' then
    break
  end
  redis.pcall('hdel', asks, unpack(dead))
  for _, entry in ipairs(dead) do
    tell(entry, 'r')
  end
  dropped = dropped + #dead
  first = #dead == #front and redis.pcall('zrange', queue, 0, 0)[1] or nil
end
