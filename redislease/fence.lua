-- Refuses a write whose token is below the highest that the resource has accepted, and
-- accepts it as the highest otherwise. The body of the script follows, with the KEYS
-- and ARGV that are its own.
--
-- KEYS: the mark, those of the body. ARGV: the token, those of the body.
--
-- Tokens are compared as texts: Lua's numbers are exact up to 2^53 only.

local mark, token = redis.call('GET', KEYS[1]), ARGV[1]
if mark and (#token < #mark or #token == #mark and token < mark) then
  return redis.error_reply('STALETOKEN ' .. mark)
end
if mark ~= token then
  redis.call('SET', KEYS[1], token)
end

local KEYS, ARGV = {unpack(KEYS, 2)}, {unpack(ARGV, 2)}
