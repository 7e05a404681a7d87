#include "api/protocol.h"
