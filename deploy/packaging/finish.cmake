# cpack runs it once everything is installed below CPACK_TEMPORARY_DIRECTORY: what only the package has.
set(root ${CPACK_TEMPORARY_DIRECTORY})
set(documents ${root}/usr/share/doc/escrow)

# do(COMMAND...)
macro(do)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endmacro()

file(MAKE_DIRECTORY ${root}/etc/escrow ${root}/var/lib/escrow/repositories ${root}/var/lib/escrow/sessions)
# `cmake --install` would put it over an administrator's own.
do(install -m 644 ${CMAKE_CURRENT_LIST_DIR}/escrowd.json ${root}/etc/escrow/escrowd.json)
do(install -m 644 ${CMAKE_CURRENT_LIST_DIR}/copyright ${documents}/copyright)
file(REMOVE ${documents}/LICENSE)
file(RENAME ${documents}/CHANGELOG.md ${documents}/changelog)
do(gzip --best --no-name ${documents}/changelog ${root}/usr/share/man/man1/escrow.1
  ${root}/usr/share/man/man7/escrow-policy.7 ${root}/usr/share/man/man8/escrowd.8)
# Else the umask of who builds it decides.
do(find ${root} -type d -exec chmod 755 {} +)
