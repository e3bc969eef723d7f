/* Builds descriptors and completions with the vendor's definitions; lines of the standard input
 * say which. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <endian.h>
#include <infiniband/mlx5dv.h>

static void print(const void *bytes, size_t count)
{
	const unsigned char *byte = bytes;

	while (count--)
		printf("%02x", *byte++);
	printf("\n");
}

static void *control(void *at, uint16_t index, uint8_t opcode, uint32_t pair, uint8_t flags, uint8_t units, uint32_t immediate)
{
	mlx5dv_set_ctrl_seg(at, index, opcode, 0, pair, flags, units, 0, htobe32(immediate));
	return (char *)at + sizeof(struct mlx5_wqe_ctrl_seg);
}

static void *data(void *at, unsigned count)
{
	while (count--) {
		uint32_t length, key;
		uint64_t address;

		if (scanf("%" SCNu32 " %" SCNu32 " %" SCNu64, &length, &key, &address) != 3)
			return at;
		mlx5dv_set_data_seg(at, length, key, address);
		at = (char *)at + sizeof(struct mlx5_wqe_data_seg);
	}
	return at;
}

static void request(void)
{
	static char bytes[2048];
	unsigned index, opcode, pair, flags, count, units;
	uint64_t address;
	uint32_t key;
	char *at;

	if (scanf("%u %u %u %u %u %" SCNu64 " %" SCNu32, &index, &opcode, &pair, &flags, &count, &address, &key) != 7)
		return;
	memset(bytes, 0, sizeof(bytes));
	units = 1 + count + (opcode != MLX5_OPCODE_SEND);
	at = control(bytes, index, opcode, pair, flags, units, 0);
	if (opcode != MLX5_OPCODE_SEND) {
		struct mlx5_wqe_raddr_seg *remote = (void *)at;

		remote->raddr = htobe64(address);
		remote->rkey = htobe32(key);
		at += sizeof(*remote);
	}
	at = data(at, count);
	print(bytes, at - bytes);
}

static void carried(void)
{
	static char bytes[2048];
	unsigned index, opcode, pair, flags, length, first, place, units;
	struct mlx5_wqe_inl_data_seg *segment;
	uint64_t address;
	uint32_t key;
	char *at;

	if (scanf("%u %u %u %u %" SCNu64 " %" SCNu32 " %u %u", &index, &opcode, &pair, &flags, &address, &key, &length, &first) != 8)
		return;
	memset(bytes, 0, sizeof(bytes));
	units = 1 + (opcode != MLX5_OPCODE_SEND) + (sizeof(*segment) + length + 15) / 16;
	at = control(bytes, index, opcode, pair, flags, units, 0);
	if (opcode != MLX5_OPCODE_SEND) {
		struct mlx5_wqe_raddr_seg *remote = (void *)at;

		remote->raddr = htobe64(address);
		remote->rkey = htobe32(key);
		at += sizeof(*remote);
	}
	segment = (void *)at;
	segment->byte_count = htobe32(length | MLX5_INLINE_SEG);
	at += sizeof(*segment);
	for (place = 0; place < length; place++)
		at[place] = first + 7 * place;
	print(bytes, units * 16);
}

static void bind(void)
{
	static char bytes[2048];
	unsigned index, pair, flags, variant, binds, may_read, may_write;
	uint64_t address, length;
	uint32_t key, region, access = 0;
	uint64_t mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
	struct mlx5_wqe_umr_ctrl_seg *update;
	struct mlx5_wqe_mkey_context_seg *context;
	char *at;

	if (scanf("%u %u %u %" SCNu32 " %u %u %" SCNu64 " %" SCNu64 " %" SCNu32 " %u %u", &index, &pair, &flags, &key, &variant,
		  &binds, &address, &length, &region, &may_read, &may_write) != 11)
		return;
	memset(bytes, 0, sizeof(bytes));
	at = control(bytes, index, MLX5_OPCODE_UMR, pair, flags, binds ? 12 : 8, key);
	update = (void *)at;
	context = (void *)(update + 1);
	update->flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE | MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET;
	context->qpn_mkey = htobe32(0xffffff00 | variant);
	if (binds) {
		update->klm_octowords = htobe16(4);
		mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR |
			MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
			MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC;
		/* The vendor's library sets the rights that a window was asked for: remote ones. */
		if (may_read)
			access |= MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ;
		if (may_write)
			access |= MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE;
		context->access_flags = access;
		context->start_addr = htobe64(address);
		context->len = htobe64(length);
		mlx5dv_set_data_seg((void *)(context + 1), length, region, address);
	} else {
		context->free = MLX5_WQE_MKEY_CONTEXT_FREE;
	}
	update->mkey_mask = htobe64(mask);
	print(bytes, (binds ? 12 : 8) * 16);
}

static void receive(void)
{
	static char bytes[2048];
	unsigned count, units;
	char *at;

	if (scanf("%u %u", &count, &units) != 2)
		return;
	memset(bytes, 0, sizeof(bytes));
	at = data(bytes, count);
	if (count < units) {
		mlx5dv_set_data_seg((void *)at, 0, MLX5_INVALID_LKEY, 0);
		at += sizeof(struct mlx5_wqe_data_seg);
	}
	print(bytes, at - bytes);
}

static void completion(void)
{
	struct mlx5_cqe64 entry;
	unsigned user_index, length, syndrome, pair, opcode, index, kind, solicited, owner;

	if (scanf("%u %u %u %u %u %u %u %u %u", &user_index, &length, &syndrome, &pair, &opcode, &index, &kind, &solicited, &owner) != 9)
		return;
	memset(&entry, 0, sizeof(entry));
	entry.srqn_uidx = htobe32(user_index);
	entry.byte_cnt = htobe32(length);
	entry.sop_drop_qpn = htobe32(opcode << 24 | pair);
	entry.wqe_counter = htobe16(index);
	entry.op_own = kind << 4 | solicited << 1 | owner;
	if (mlx5dv_get_cqe_opcode(&entry) != kind || mlx5dv_get_cqe_owner(&entry) != owner || mlx5dv_get_cqe_se(&entry) != solicited)
		return;
	if (kind == MLX5_CQE_REQ_ERR || kind == MLX5_CQE_RESP_ERR)
		((struct mlx5_err_cqe *)&entry)->syndrome = syndrome;
	print(&entry, sizeof(entry));
}

int main(void)
{
	char what[16];

	while (scanf("%15s", what) == 1) {
		if (!strcmp(what, "request"))
			request();
		else if (!strcmp(what, "carried"))
			carried();
		else if (!strcmp(what, "bind"))
			bind();
		else if (!strcmp(what, "receive"))
			receive();
		else if (!strcmp(what, "completion"))
			completion();
	}
	return 0;
}
