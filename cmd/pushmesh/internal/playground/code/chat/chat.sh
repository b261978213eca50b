# A chat: the last 20 messages, and all that follow.
pushmesh sub play/chat --ack --last 20 \
  --edge 127.0.0.1:7400 &

# Who is there, then each join and leave.
pushmesh presence watch play/chat \
  --router 127.0.0.1:7401 &

# Backends publish through a router. The answer is the seq.
pushmesh pub play/chat 'hello from the shell' \
  --router 127.0.0.1:7401

# What the log holds.
pushmesh history play/chat --router 127.0.0.1:7401

wait
