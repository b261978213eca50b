# Any topics, many at a time: + is one level, # is all that
# follow. Gaps are printed, too.
pushmesh sub 'play/news/#' --from earliest \
  --edge 127.0.0.1:7400 &

# Backends publish anywhere, through a router.
pushmesh pub play/news/today 'hello from the shell' \
  --router 127.0.0.1:7401

# Who may do what in a namespace is its policy.
pushmesh namespace get play --router 127.0.0.1:7401

wait
