//! Segments on the exporter's side, on the engines and on the oracle.

use super::arguments::{access_list, page_range, published_id};
use super::*;
use crate::rsm::signals::Signals;

impl Runner {
    pub(super) fn export(&mut self, side: Side, op: &ExportOp) -> Outcome {
        match op {
            ExportOp::Create {
                start,
                length,
                flags,
            } => {
                let (start, length) = page_range(*start, *length);
                let rebind = flags & 1 != 0;
                let locks = flags & 0xF0 == 0xF0;
                let mut bits = ExportFlags::empty();
                bits.set(ExportFlags::ALLOW_REBIND, rebind);
                bits.set(ExportFlags::LOCK_OPERATIONS, locks);
                let expected = self.world.export_create(side, start, length);
                let (region, controller) = (
                    self.pages(side, start, length),
                    self.controllers[side.index()],
                );
                let made = self.on(side, |engine, _| {
                    engine.export_create(controller, region, bits)
                });
                if let Some(export) = self.judge(side, "export_create", expected, made)? {
                    let object = world::Export {
                        start,
                        length,
                        rebind,
                        locks,
                        publication: None,
                        signals: Signals::default(),
                        polls: 0,
                    };
                    let exports = &mut self.world.node_mut(side).exports;
                    exports.add(export.handle(), object);
                }
            }
            ExportOp::Publish { export, id, access } => {
                let (handle, index) = self.picked_export(side, *export);
                let (id, access) = (published_id(*id), access_list(access));
                let expected = self.world.publish(side, index, id, &access);
                let export = ExportId::from_handle(handle);
                let done = self.on(side, |engine, _| engine.export_publish(export, id, &access));
                let done = self.judge(side, "export_publish", expected.map(drop), done)?;
                if done != expected.ok() {
                    return self.mismatch(expected, done);
                }
            }
            ExportOp::Republish { export, access } => {
                let (handle, index) = self.picked_export(side, *export);
                let access = access_list(access);
                let expected = self.world.republish(side, index, &access);
                let export = ExportId::from_handle(handle);
                let done = self.on(side, |engine, _| engine.export_republish(export, &access));
                self.judge(side, "export_republish", expected, done)?;
            }
            ExportOp::Unpublish { export } => {
                let (handle, index) = self.picked_export(side, *export);
                let expected = self.world.unpublish(side, index);
                let export = ExportId::from_handle(handle);
                let done = self.on(side, |engine, wait| engine.export_unpublish(export, wait));
                self.judge(side, "export_unpublish", expected, done)?;
            }
            ExportOp::Rebind {
                export,
                start,
                length,
            } => {
                let (handle, index) = self.picked_export(side, *export);
                let (start, length) = page_range(*start, *length);
                let expected = self.world.rebind(side, index, start, length);
                let (export, region) = (
                    ExportId::from_handle(handle),
                    self.pages(side, start, length),
                );
                let done = self.on(side, |engine, wait| {
                    engine.export_rebind(export, region, wait)
                });
                self.judge(side, "export_rebind", expected, done)?;
            }
            ExportOp::Destroy { export } => {
                let (handle, index) = self.picked_export(side, *export);
                let expected = self.world.destroy(side, index);
                let export = ExportId::from_handle(handle);
                let done = self.on(side, |engine, wait| engine.export_destroy(export, wait));
                self.judge(side, "export_destroy", expected, done)?;
            }
        }
        Ok(())
    }
}
