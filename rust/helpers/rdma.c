// SPDX-License-Identifier: GPL-2.0
/* Inline functions, macros and fields of the RDMA core, made callable. No logic. */

#include <linux/cpumask.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

int sdp_helper_ib_poll_cq(struct ib_cq *cq, int num_entries, struct ib_wc *wc);
int sdp_helper_ib_poll_cq(struct ib_cq *cq, int num_entries, struct ib_wc *wc)
{
	return ib_poll_cq(cq, num_entries, wc);
}

int sdp_helper_ib_req_notify_cq(struct ib_cq *cq, unsigned int flags);
int sdp_helper_ib_req_notify_cq(struct ib_cq *cq, unsigned int flags)
{
	return ib_req_notify_cq(cq, (enum ib_cq_notify_flags)flags);
}

int sdp_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr);
int sdp_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr)
{
	return ib_post_send(qp, wr, NULL);
}

int sdp_helper_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			    const struct ib_recv_wr **bad_wr);
int sdp_helper_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			    const struct ib_recv_wr **bad_wr)
{
	return ib_post_recv(qp, wr, bad_wr);
}

u64 sdp_helper_ib_dma_map_page(struct ib_device *dev, struct page *page,
			       unsigned long offset, size_t size,
			       enum dma_data_direction direction);
u64 sdp_helper_ib_dma_map_page(struct ib_device *dev, struct page *page,
			       unsigned long offset, size_t size,
			       enum dma_data_direction direction)
{
	return ib_dma_map_page(dev, page, offset, size, direction);
}

void sdp_helper_ib_dma_unmap_page(struct ib_device *dev, u64 addr, size_t size,
				  enum dma_data_direction direction);
void sdp_helper_ib_dma_unmap_page(struct ib_device *dev, u64 addr, size_t size,
				  enum dma_data_direction direction)
{
	ib_dma_unmap_page(dev, addr, size, direction);
}

u64 sdp_helper_ib_dma_map_single(struct ib_device *dev, void *cpu_addr,
				 size_t size, enum dma_data_direction dir);
u64 sdp_helper_ib_dma_map_single(struct ib_device *dev, void *cpu_addr,
				 size_t size, enum dma_data_direction dir)
{
	return ib_dma_map_single(dev, cpu_addr, size, dir);
}

void sdp_helper_ib_dma_unmap_single(struct ib_device *dev, u64 addr,
				    size_t size, enum dma_data_direction dir);
void sdp_helper_ib_dma_unmap_single(struct ib_device *dev, u64 addr,
				    size_t size, enum dma_data_direction dir)
{
	ib_dma_unmap_single(dev, addr, size, dir);
}

int sdp_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr);
int sdp_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr)
{
	return ib_dma_mapping_error(dev, addr);
}

void sdp_helper_ib_dma_sync_for_cpu(struct ib_device *dev, u64 addr,
				    size_t size,
				    enum dma_data_direction dir);
void sdp_helper_ib_dma_sync_for_cpu(struct ib_device *dev, u64 addr,
				    size_t size,
				    enum dma_data_direction dir)
{
	ib_dma_sync_single_for_cpu(dev, addr, size, dir);
}

void sdp_helper_ib_dma_sync_for_device(struct ib_device *dev, u64 addr,
				       size_t size,
				       enum dma_data_direction dir);
void sdp_helper_ib_dma_sync_for_device(struct ib_device *dev, u64 addr,
				       size_t size,
				       enum dma_data_direction dir)
{
	ib_dma_sync_single_for_device(dev, addr, size, dir);
}

u32 sdp_helper_ib_device_max_send_sge(const struct ib_device *dev);
u32 sdp_helper_ib_device_max_send_sge(const struct ib_device *dev)
{
	return dev->attrs.max_send_sge;
}

u32 sdp_helper_ib_device_max_recv_sge(const struct ib_device *dev);
u32 sdp_helper_ib_device_max_recv_sge(const struct ib_device *dev)
{
	return dev->attrs.max_recv_sge;
}

u32 sdp_helper_ib_pd_local_dma_lkey(const struct ib_pd *pd);
u32 sdp_helper_ib_pd_local_dma_lkey(const struct ib_pd *pd)
{
	return pd->local_dma_lkey;
}

u64 sdp_helper_ib_device_cap_flags(const struct ib_device *dev);
u64 sdp_helper_ib_device_cap_flags(const struct ib_device *dev)
{
	return dev->attrs.device_cap_flags;
}

u32 sdp_helper_ib_device_driver_id(const struct ib_device *dev);
u32 sdp_helper_ib_device_driver_id(const struct ib_device *dev)
{
	return dev->ops.driver_id;
}

u32 sdp_helper_ib_device_max_fast_reg_pages(const struct ib_device *dev);
u32 sdp_helper_ib_device_max_fast_reg_pages(const struct ib_device *dev)
{
	return dev->attrs.max_fast_reg_page_list_len;
}

u32 sdp_helper_ib_device_max_qp_rd_atom(const struct ib_device *dev);
u32 sdp_helper_ib_device_max_qp_rd_atom(const struct ib_device *dev)
{
	return dev->attrs.max_qp_rd_atom;
}

u32 sdp_helper_ib_device_max_qp_init_rd_atom(const struct ib_device *dev);
u32 sdp_helper_ib_device_max_qp_init_rd_atom(const struct ib_device *dev)
{
	return dev->attrs.max_qp_init_rd_atom;
}

int sdp_helper_ib_device_num_comp_vectors(const struct ib_device *dev);
int sdp_helper_ib_device_num_comp_vectors(const struct ib_device *dev)
{
	return dev->num_comp_vectors;
}

unsigned int sdp_helper_num_online_cpus(void);
unsigned int sdp_helper_num_online_cpus(void)
{
	return num_online_cpus();
}

bool sdp_helper_rdma_protocol_roce(const struct ib_device *dev, u32 port);
bool sdp_helper_rdma_protocol_roce(const struct ib_device *dev, u32 port)
{
	return rdma_protocol_roce(dev, port);
}

bool sdp_helper_rdma_protocol_iwarp(const struct ib_device *dev, u32 port);
bool sdp_helper_rdma_protocol_iwarp(const struct ib_device *dev, u32 port)
{
	return rdma_protocol_iwarp(dev, port);
}

int sdp_helper_ib_dma_map_sgtable(struct ib_device *dev, struct sg_table *sgt,
				  enum dma_data_direction dir);
int sdp_helper_ib_dma_map_sgtable(struct ib_device *dev, struct sg_table *sgt,
				  enum dma_data_direction dir)
{
	return ib_dma_map_sgtable_attrs(dev, sgt, dir, 0);
}

void sdp_helper_ib_dma_unmap_sgtable(struct ib_device *dev,
				     struct sg_table *sgt,
				     enum dma_data_direction dir);
void sdp_helper_ib_dma_unmap_sgtable(struct ib_device *dev,
				     struct sg_table *sgt,
				     enum dma_data_direction dir)
{
	ib_dma_unmap_sgtable_attrs(dev, sgt, dir, 0);
}

struct scatterlist *sdp_helper_sg_next(struct scatterlist *sg);
struct scatterlist *sdp_helper_sg_next(struct scatterlist *sg)
{
	return sg_next(sg);
}

u64 sdp_helper_sg_dma_address(const struct scatterlist *sg);
u64 sdp_helper_sg_dma_address(const struct scatterlist *sg)
{
	return sg_dma_address(sg);
}

void sdp_helper_sg_set_dma(struct scatterlist *sg, u64 addr, u32 len);
void sdp_helper_sg_set_dma(struct scatterlist *sg, u64 addr, u32 len)
{
	sg_dma_address(sg) = addr;
	sg_dma_len(sg) = len;
}

u32 sdp_helper_sg_dma_len(const struct scatterlist *sg);
u32 sdp_helper_sg_dma_len(const struct scatterlist *sg)
{
	return sg_dma_len(sg);
}

const char *sdp_helper_ib_device_name(const struct ib_device *dev);
const char *sdp_helper_ib_device_name(const struct ib_device *dev)
{
	return dev_name(&dev->dev);
}

u32 sdp_helper_rdma_start_port(const struct ib_device *dev);
u32 sdp_helper_rdma_start_port(const struct ib_device *dev)
{
	return rdma_start_port(dev);
}

u32 sdp_helper_rdma_end_port(const struct ib_device *dev);
u32 sdp_helper_rdma_end_port(const struct ib_device *dev)
{
	return rdma_end_port(dev);
}

u32 sdp_helper_ib_device_max_sge_rd(const struct ib_device *dev);
u32 sdp_helper_ib_device_max_sge_rd(const struct ib_device *dev)
{
	return dev->attrs.max_sge_rd;
}

void sdp_helper_ib_update_fast_reg_key(struct ib_mr *mr, u8 newkey);
void sdp_helper_ib_update_fast_reg_key(struct ib_mr *mr, u8 newkey)
{
	ib_update_fast_reg_key(mr, newkey);
}
