--! script proclaimed
--! key 1 lock  hash NAME
--! key 2 said  hash mortise:1:proclaim:{NAME}
--! arg 1 most  int
--! reply strings nothing, or owner, text, token, and what is left of the owner's lease in ms (-1: no end)
--! bound 12 calls 1 KB
--
-- Reads the text of the lock's present owner. A text of another owner, of an owner whose lease is over, or of more
-- bytes than most, counts as none.
local said = redis.call('hmget', KEYS[2], 'owner', 'text', 'token')
local owner, text, token = said[1], said[2], said[3]
if not (owner and text and token) or #text > tonumber(ARGV[1]) or redis.call('hexists', KEYS[1], owner) == 0 then
  return {}
end
local left
--! include own_lease owner=owner left=left
if left == 0 then
  return {}
end
return {owner, text, token, string.format('%.0f', left)}
