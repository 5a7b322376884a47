--! fragment grant_entry lock entry wants owner granted lasts
--
-- Grants a free lock to the owner in an entry, for a first lease, and tells its client: the message is the grant. wants
-- is the mark before the owner in the entry: - asks for the lock, f for a token, too, and + for what the hash
-- queue:asks has for the entry: a lease, which may be shorter than a first lease, and whether it asks for a token. The record
-- lasts a little longer than what the client believes (first_spare). granted is 1 then, and lasts the time until the
-- record ends. It is 0 if the client does not listen, and does not poll, or if this user may not tell it. What cannot
-- be granted (the server is full, or the user may not count subscribers or draw a token, or the entry was not written
-- by mortise) is -1. Nothing that a grant meets fails the release of another.
--
-- The subscribers are counted before the message is sent, and a grant that was told is not undone: a client that this
-- server does not count may hear the message from a replica. Such a client is told to ask.
local lease, fenced = first_lease, wants == 'f' and '1' or '0'
if wants == '+' then
  local ask = redis.pcall('hget', asks, entry)
  lease, fenced = string.match(type(ask) == 'string' and ask or '', '^(%d+):([01])$')
  redis.pcall('hdel', asks, entry)
end
local count, token = listens(entry), 0
local polled = count == 0 and redis.pcall('hget', round, 'polls:' .. entry)
polled = type(polled) == 'string' and tonumber(polled) or 0
granted = (count ~= 0 or polled > 0) and -1 or 0
if fenced == '1' and granted == -1 and count then -- see draw_token
  local counter = 'redisson_lock_token:' .. string.sub(channel, #'redisson_lock__channel:' + 1)
  token = redis.pcall('exists', counter)
  if token == 1 then
    token = redis.pcall('incr', counter)
  elseif token == 0 and at then
    token = at
    local set = redis.pcall('set', counter, string.format('%.0f', token))
    token = set.ok and token or set
  end
end
if granted == -1 and count and lease and at and #owner <= owner_longest and
  type(token) == 'number' and token < token_refused and type(redis.pcall('hset', lock, owner, '1')) == 'number' then
  granted = 1
  lease = math.min(lease, first_lease)
  lasts = lease + first_spare
  if count == 0 then -- its client asks within this time
    lasts = math.max(math.floor(math.min(2 * polled, lease, polled_reservation)), 1)
    redis.pcall('hdel', round, 'polls:' .. entry)
  end
  redis.call('pexpire', lock, lasts)
end
if granted == 1 and count ~= 0 then
  local message = string.format('g%.0f:%.0f:%.0f:', us, token, lease)
  if type(tell(entry, message)) == 'table' then -- its user may not publish there
    redis.call('hdel', lock, owner)
    granted = 0
  end
elseif granted == 0 then
  tell(entry, 'r')
end
