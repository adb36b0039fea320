-- Grants the lock to an owner, or says for how many milliseconds another holds it.
-- To an owner that has it, as when a client repeats a command whose answer was lost,
-- it says the token of then.
--
-- KEYS: the lock, the counter of its tokens. ARGV: the owner, the TTL in ms.

local held = redis.call('GET', KEYS[1])
if not held then
  local token = string.format('%.0f', redis.call('INCR', KEYS[2]))
  redis.call('SET', KEYS[1], ARGV[1] .. ':' .. token, 'PX', ARGV[2])
  return token
end
if string.sub(held, 1, #ARGV[1]) == ARGV[1] then
  return string.sub(held, #ARGV[1] + 2)
end
return redis.call('PTTL', KEYS[1])
