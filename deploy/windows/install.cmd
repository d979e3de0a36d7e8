@echo off
rem Installs csi-proxy.exe as a Windows service of this node, or replaces it by the
rem one next to this script, and starts it. Run it as an administrator of the node;
rem no PowerShell is needed. Arguments are those of "csi-proxy install", such as
rem
rem   install.cmd --kubelet-path=D:\kubelet --working-dir=D:\csi
rem
rem An old csi-proxy whose API versions are still needed stays next to it as a
rem service of another name; each pipe is served by the process that had it first.
setlocal
set "SOURCE=%~dp0csi-proxy.exe"
set "TARGET=%ProgramFiles%\Holdfast\csi-proxy"
set "PROGRAM=%TARGET%\csi-proxy.exe"

if not exist "%SOURCE%" (
  echo install: there is no %SOURCE% 1>&2
  exit /b 1
)
rem Its stop gives calls in flight time to end, and frees its pipes and its file.
if exist "%PROGRAM%" "%PROGRAM%" stop
if not exist "%TARGET%" mkdir "%TARGET%"
copy /y "%SOURCE%" "%PROGRAM%" >nul
if errorlevel 1 (
  echo install: cannot write %PROGRAM%: is this an administrator, and has the service stopped? 1>&2
  exit /b 1
)
"%PROGRAM%" install %*
if errorlevel 1 exit /b 1
"%PROGRAM%" start
if errorlevel 1 exit /b 1
"%PROGRAM%" status
