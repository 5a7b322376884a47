-- Tells what the user of this connection is permitted, and what else may be seen. redis.acl_check_cmd asks without an
-- entry in ACL LOG. ARGV has, for each question, five lists, each after its length: commands with a key, without one,
-- with a channel, keys, channels. The reply has the server's clock in microseconds and INFO memory, each empty if it is
-- not permitted, and then for each question a text: for each word of its lists 1 permitted, 0 not, - not known here.
local at = 1
-- Of these, each argument is a key or channel; of the others, none behind the first one.
local each = {exists = true, del = true, unlink = true, subscribe = true, ssubscribe = true}
local function list()
  local n, items = tonumber(ARGV[at]), {}
  for i = 1, n do
    items[i] = ARGV[at + i]
  end
  at = at + n + 1
  return items
end
local function may(command, arg)
  local args = {}
  for word in string.gmatch(command, '[^|]+') do
    args[#args + 1] = word
  end
  args[#args + 1] = arg
  if not each[command] then
    for _ = 1, 4 do
      args[#args + 1] = '0'
    end
  end
  local known, permitted = pcall(redis.acl_check_cmd, unpack(args))
  return known and (permitted and '1' or '0') or '-'
end
-- Whether one of the commands is permitted with one of the arguments.
local function any(commands, args)
  local best = '-'
  for _, command in ipairs(commands) do
    for _, arg in ipairs(args) do
      local found = may(command, arg)
      if found == '1' then
        return found
      end
      best = found == '0' and found or best
    end
  end
  return best
end
local time, info = '', ''
if may('time') == '1' then
  local now = redis.call('time')
  time = string.format('%.0f', now[1] * 1000000 + now[2])
end
if may('info') == '1' then
  info = redis.call('info', 'memory')
end
local reply = {time, info}
while at <= #ARGV do
  local keyed, plain, told, keys, channels = list(), list(), list(), list(), list()
  local found = {}
  for _, command in ipairs(keyed) do
    found[#found + 1] = any({command}, keys)
  end
  for _, command in ipairs(plain) do
    found[#found + 1] = may(command)
  end
  for _, command in ipairs(told) do
    found[#found + 1] = any({command}, channels)
  end
  for _, key in ipairs(keys) do
    found[#found + 1] = any(keyed, {key})
  end
  for _, channel in ipairs(channels) do
    found[#found + 1] = any(told, {channel})
  end
  reply[#reply + 1] = table.concat(found)
end
return reply
