// The one place that includes libfuse, so that every file sees the same version of its interface (3.14, the floor).
#pragma once

#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 314
#endif
#include <fuse_lowlevel.h>
