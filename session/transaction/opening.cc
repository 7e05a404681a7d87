#include "session/transaction/opening.h"

#include <exception>

namespace escrow::session {

void record_open(const Services& services, const SessionRecord& record, SessionDirectory& held) {
  services.catalog.insert(record);
  mark_open(services, record.id, held);
}

void mark_open(const Services& services, const SessionId& id, SessionDirectory& held) {
  try {
    if (!held.has_work()) held.opened();
  } catch (const std::exception& failure) {
    services.log.write(LogLevel::warning, "session " + id.text() + " is open, but its directory could not be marked "
                                          "(should the catalog be lost, what it holds decides): " + failure.what());
  }
}

}  // namespace escrow::session
