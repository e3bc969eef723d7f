#!/bin/bash
#: about = "the bare-metal image on QEMU's paravirtual adapter over soft-RoCE; run by `cargo xtask firmware --nested`, which compares its log"
#: timeout = 300
#: memory = 1024
#: programs = ["base64", "qemu-system-x86_64"]
#: libraries = ["qemu/accel-tcg-x86_64.so"]
#: files = ["/usr/share/seabios/bios-256k.bin", "/usr/share/qemu/kvmvapic.bin", "/usr/share/qemu/multiboot_dma.bin", "/usr/share/qemu/linuxboot_dma.bin", "/usr/share/qemu/pvh.bin"]
# Arguments: the image, the options of its machine. Its log goes into the record.
set -Eeuo pipefail
trap 'echo "line $LINENO ended with $?"' ERR
image=$(command -v "${1:?the image: cargo xtask firmware --nested}")
shift
cd /run

# The server of addresses: an adapter sends a message of 360 bytes. The answer is the same with another kind and no error.
port=4791
answer() {
    wait_until 60 listens $port
    exec 3<> /dev/tcp/127.0.0.1/$port
    while head -c 360 <&3 > message && [ -s message ]; do
        {
            printf '\1\0\0\0'
            tail -c +5 message | head -c 20
            printf '\0\0\0\0'
            tail -c +29 message
        } > answered
        cat answered >&3
    done
}
answer &

code=0
begin=$(now)
timeout 120 qemu-system-x86_64 -accel tcg,tb-size=64 -display none -vga none -monitor none -no-reboot -nic none \
    -m 64M -object memory-backend-ram,id=memory,size=64M,share=on "$@" -serial file:serial \
    -chardev socket,host=127.0.0.1,port=$port,server=on,wait=on,id=addresses \
    -device vmxnet3,addr=10.0,multifunction=on,romfile= \
    -device pvrdma,addr=10.1,ibdev="$RDMA_DEVICE",netdev="$RDMA_INTERFACE",mad-chardev=addresses -kernel "$image" || code=$?
echo "QEMU exited with code $code, from $begin to $(now)"
count ended "$code"
base64 -w 200 serial > text
while read -r line; do
    count log "$line"
done < text
