#!/bin/bash
# Prints a report when DCGM finds a GPU of this node unhealthy, and nothing while all are well.
# The watches are passive: they read counters, and disturb no job (NVIDIA, DCGM, "Health Monitoring").

# A container sees the devices that existed when it started. Until the driver is there, the kubelet starts it again.
if [ ! -e /dev/nvidiactl ]; then
  echo "waiting for the driver on $NODE_NAME"
  sleep 30
  exit 1
fi

nv-hostengine -n &
engine=$!
sleep 5
dcgmi health --set a || exit 1

# Some watches need a minute of samples.
while sleep 60 && kill -0 "$engine"; do
  health=$(dcgmi health --check 2>&1)
  if ! grep -q "Overall Health.*Healthy" <<< "$health"; then
    printf 'unhealthy GPU on %s\n%s\n' "$NODE_NAME" "$health"
  fi
done
exit 1
